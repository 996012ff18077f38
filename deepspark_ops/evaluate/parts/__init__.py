"""How are samples scored in parts, by processes of their own, and put together?"""
