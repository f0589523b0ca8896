package memory

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// A weir that nobody has asked anything holds little: what only some configurations or
// pages need is not made when it starts. What it has of its own counts here. How much of
// the program file the system maps beside that is a matter of its cache.
func TestMemory_AfterStart(t *testing.T) {
	const most = 7 << 20
	w := run(t, "http://127.0.0.1:1", easy)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "\nRssAnon:")
	kib, err := strconv.ParseInt(strings.Fields(line)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := w.resident()
	t.Logf("%d KiB of its own, %d KiB resident", kib, all>>10)
	if kib<<10 > most {
		t.Errorf("a weir has %d KiB of its own after its start; want at most %d", kib, most>>10)
	}
}
