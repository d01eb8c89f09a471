"""How the pages of results are made from the CSVs beside them."""
