"""The tuner in the job."""
