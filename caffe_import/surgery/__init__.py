"""Net surgery on weights files, and old files written anew in Caffe's current form."""
