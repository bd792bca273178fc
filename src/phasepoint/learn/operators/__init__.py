"""The model of frameworks' operators on devices that were never seen."""
