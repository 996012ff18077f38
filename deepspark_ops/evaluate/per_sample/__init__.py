"""What is known of each sample by itself, and of groups of samples?"""
