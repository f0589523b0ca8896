package pooltest

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type pooled struct {
	mu     sync.Mutex
	wakes  sync.Cond
	client string
	body   []byte
	at     time.Time
	err    error
	seen   atomic.Bool
	after  func()
	lines  map[string][]int
	inner  struct{ count [2]int }
	state  any
}

// A finding is a testing.TB that remembers what was found.
type finding struct {
	testing.TB
	found []string
}

func (*finding) Helper() {}

func (f *finding) Errorf(_ string, args ...any) { f.found = append(f.found, args[0].(string)) }

// Every field that a reset forgets is found.
func TestEmpty_FindsWhatWasForgotten(t *testing.T) {
	var p pooled
	Fill(t, &p)
	p.body = p.body[:0] // memory may be kept
	f := &finding{TB: t}
	Empty(f, &p, "pooled.state", "pooled.never")
	want := []string{
		"pooled.wakes.L", "pooled.client", "pooled.at.wall", "pooled.at.ext", "pooled.at.loc", "pooled.err", "pooled.seen.v",
		"pooled.after", "pooled.lines", "pooled.inner.count", "pooled.never",
	}
	if !slices.Equal(f.found, want) {
		t.Errorf("found %s\nwant  %s", strings.Join(f.found, " "), strings.Join(want, " "))
	}
	p, f.found = pooled{}, nil
	p.inner.count = [2]int{1, 2}
	Empty(f, &p, "pooled.inner") // a struct may be kept as a whole
	if f.found != nil {
		t.Errorf("found %q in a value that keeps what it may", f.found)
	}
}
