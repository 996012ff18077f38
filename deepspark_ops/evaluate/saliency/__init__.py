"""Saliency maps: which pixels of a picture a net's answer depends on."""
