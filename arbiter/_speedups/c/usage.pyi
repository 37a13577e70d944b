from arbiter._speedups.py.usage import Counts as Counts
from arbiter._speedups.py.usage import chat as chat
from arbiter._speedups.py.usage import gemini as gemini
from arbiter._speedups.py.usage import merge_messages as merge_messages
from arbiter._speedups.py.usage import messages as messages
from arbiter._speedups.py.usage import responses as responses
