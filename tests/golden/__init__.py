"""What may never change, frozen: verdicts, keys, random streams, file formats, names, pages.

Cases come in by the command line, by files and by public names; the few inner parts they need are
imported in ``where.py`` alone, which is what changes when something moves. What they give is
compared with ``data/*.json``. After a change that is meant, and only then:

    PYTHONPATH=tests python -m golden.write [CASE …]
"""
