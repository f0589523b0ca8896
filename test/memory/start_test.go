package memory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
)

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

// A route with a limit costs little, by what the process holds: what most routes have in common they share.
// It is 5 KiB, and a fourth more in a program with the race detector, as that of a whole run is.
func TestMemory_Routes(t *testing.T) {
	const most, n = 7 << 10, 1_000
	var routes strings.Builder
	for i := range n {
		fmt.Fprintf(&routes, "  - {name: r%d, match: {path: /api/r%d/*}, upstream: 'http://127.0.0.1:1', limits: [{key: header:X-Key, rate: %d/1m}]}\n", i, i, i%3+1)
	}
	before := run(t, "http://127.0.0.1:1", easy).held()
	w, each := runRoutes(t, "\n"+routes.String()), int64(0)
	await.Within(t, enough, fmt.Sprintf("%d bytes at most for a route", most), func() bool { // what reading the file took is garbage
		each = (w.held() - before) / n
		return each <= most
	})
	t.Logf("%d bytes a route", each)
}
