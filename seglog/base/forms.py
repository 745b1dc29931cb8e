"""The form of a data directory and of a volume: the number of what programs write there.

    form  a directory            a volume               what it adds
    1     manifest formats 1-4   commits in SGL1
    2     manifest format 5      commits in SGL2        in a directory, deletes of ranges and of single records, and
                                                        undeletes; in a volume, the undo of a commit

FORM-1  A new directory has the newest form. A new volume has the form of the directory that makes it, or of its parent.
    What is there keeps its form until `seglog upgrade`, so older programs beside this one go on.
FORM-2  A call that needs a newer form raises `UpgradeNeeded` before it changes anything.
FORM-3  The manifest of the newer form is durable before the first frame that needs it. In a volume, each commit says
    its form, and no commit has a lower form than the one before. So an older program finds the form before it reads
    what it would misread, and raises `FormatUnsupported`. What it has not published stays in its directory.
FORM-4  A form does not go back.
"""

NEWEST = 2
"""The newest form that this software reads and writes."""
