"""The ground floor: tables, intervals, statistics, units and errors. Knows no format and no run."""
