import time


def local_time():
    now = time.localtime()
    return time.strftime("%H:%M:%S", now)
