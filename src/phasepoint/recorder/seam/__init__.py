"""Where the recorder touches the job: functions wrapped and put back, errors kept in, imports noticed."""
