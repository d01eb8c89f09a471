"""How photographs and label maps lie in folders: names, endings, lists, splits."""
