"""LSTM and RNN as loops over steps and streams, written from Caffe 1.0's recurrent_layer.cpp, lstm_layer.cpp,
lstm_unit_layer.cpp and rnn_layer.cpp; nothing of the package is used."""

import math

import numpy as np


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def slow_lstm(x, cont, w_x, b, w_h, *, static=None, w_static=None, h0=None, c0=None):
    """x (T, N, I), cont (T, N); weights' rows in the order i, f, o, g. Return (h (T, N, H), last h, last c)."""
    n_steps, n_streams = cont.shape
    size = w_h.shape[1]
    x = x.reshape(n_steps, n_streams, -1)
    top = np.zeros((n_steps, n_streams, size))
    last_h, last_c = np.zeros((1, n_streams, size)), np.zeros((1, n_streams, size))
    for n in range(n_streams):
        h = np.zeros(size) if h0 is None else h0[0, n].copy()
        c = np.zeros(size) if c0 is None else c0[0, n].copy()
        for t in range(n_steps):
            gates = w_x @ x[t, n] + b + w_h @ (cont[t, n] * h)
            if static is not None:
                gates = gates + w_static @ static[n].reshape(-1)
            h, c = np.zeros(size), c.copy()
            for d in range(size):
                i, f, o = (sigmoid(gates[k * size + d]) for k in range(3))
                c[d] = cont[t, n] * f * c[d] + i * math.tanh(gates[3 * size + d])
                h[d] = o * math.tanh(c[d])
            top[t, n] = h
        last_h[0, n], last_c[0, n] = h, c
    return top, last_h, last_c


def slow_rnn(x, cont, w_x, b_h, w_h, w_o, b_o, *, static=None, w_static=None, h0=None):
    """Return (o (T, N, H), last h)."""
    n_steps, n_streams = cont.shape
    size = w_h.shape[0]
    x = x.reshape(n_steps, n_streams, -1)
    top, last = np.zeros((n_steps, n_streams, size)), np.zeros((1, n_streams, size))
    for n in range(n_streams):
        h = np.zeros(size) if h0 is None else h0[0, n].copy()
        for t in range(n_steps):
            drive = w_x @ x[t, n] + b_h + w_h @ (cont[t, n] * h)
            if static is not None:
                drive = drive + w_static @ static[n].reshape(-1)
            h = np.array([math.tanh(value) for value in drive])
            top[t, n] = [math.tanh(value) for value in w_o @ h + b_o]
        last[0, n] = h
    return top, last
