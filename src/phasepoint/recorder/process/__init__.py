"""The job's processes: started under the recorder, told apart by rank, described, with a converter beside them."""
