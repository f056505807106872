"""Pages for people: the same facts as the API's, read in a browser, with or without scripts."""
