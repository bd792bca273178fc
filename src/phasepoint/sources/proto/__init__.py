"""Small `.proto` schemas of foreign formats: only the fields that are read, under their public numbers."""
