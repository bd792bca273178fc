"""A replay's side in the job: what is asked, where its loops begin, and saves kept from the original's files."""
