"""Operations that emitters of several layer types share."""
