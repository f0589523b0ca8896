package memory

import "testing"

// A weir that nobody has asked anything holds little: what only some configurations or
// pages need is not made when it starts.
func TestMemory_AfterStart(t *testing.T) {
	const most = 4 << 20
	w := run(t, "http://127.0.0.1:1", easy)
	held := w.held()
	t.Logf("%d KiB", held>>10)
	if held > most {
		t.Errorf("a weir holds %d KiB after its start; want at most %d", held>>10, most>>10)
	}
}
