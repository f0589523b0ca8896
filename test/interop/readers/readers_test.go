//go:build readers

package readers

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	variations = 5_000 // for each reader, when nothing else is asked for
	workers    = 6     // requests under way at a time
	shown      = 3     // leaks of one kind that are written out
)

// routes are those that have limits.
func routes() []string {
	return []string{"header", "query", "form", "json", "cookie", "users", "told", "token", "mark", "cost", "any-header", "any-query", "pay"}
}

// Without this the rest could pass because nobody reads anything: what is plain
// gets through once, the reader reads it, and the second time it is refused.
func plainIsRead(t *testing.T, j judge) {
	t.Helper()
	for i, route := range routes() {
		number := fmt.Sprintf("1310000%04d", i)
		a, err := send(j.weir, plain(route, number))
		if err != nil || !a.acted {
			t.Fatalf("a plain request to %s got %d, %v", route, a.status, err)
		}
		found := probes(a)
		if len(found) == 0 {
			t.Fatalf("of a plain request to %s nothing was read: %+v", route, a)
		}
		for _, p := range found {
			if !strings.Contains(p.text+" "+strings.Join(subject(p.text), ""), number) && route != "cost" {
				t.Errorf("of a plain request to %s the reader read %q, want %q", route, p.text, number)
			}
		}
		if a, err := send(j.weir, plain(route, number)); err != nil || a.status != 429 {
			t.Errorf("a second plain request to %s got %d, %v; want 429", route, a.status, err)
		}
	}
}

// TestReaders_ReadNothingThatWasNotCounted is what this folder is for.
func TestReaders_ReadNothingThatWasNotCounted(t *testing.T) {
	seed, count := setting(t, "WEIR_READERS_SEED", 1), setting(t, "WEIR_READERS_COUNT", variations)
	fmt.Printf("seed %d, %d variations for each reader\n", seed, count)
	for _, r := range readers() {
		t.Run(r.name, func(t *testing.T) {
			begun := time.Now()
			upstream := r.start(t)
			j := judge{weir: through(t, upstream), upstream: upstream}
			plainIsRead(t, j)
			s := j.all(uint64(seed), count)
			fmt.Printf("%-20s %d variations in %v: %d acted on, %d refused or not read, %d leaks\n",
				r.name, count, time.Since(begun).Round(time.Second), s.acted.Load(), int64(count)-s.acted.Load(), len(s.leaks))
			if s.acted.Load() < int64(count/20) {
				t.Errorf("only %d of %d were acted on, which shows little", s.acted.Load(), count)
			}
			s.report(t)
		})
	}
}

// A sum is what came of all variations.
type sum struct {
	acted atomic.Int64

	mu     sync.Mutex // guards what follows
	leaks  []*leak
	silent []string // requests without an answer
}

// all judges variations by several workers at a time.
func (j judge) all(seed uint64, count int) *sum {
	s := new(sum)
	var next atomic.Int64
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				m, prime := variation(seed, i)
				begun := time.Now()
				found, acted, err := j.judge(m, prime)
				if acted {
					s.acted.Add(1)
				}
				s.mu.Lock()
				if found != nil {
					s.leaks = append(s.leaks, found)
				}
				if err != nil && time.Since(begun) >= answerTimeout {
					s.silent = append(s.silent, fmt.Sprintf("%v: %v", m, err))
				}
				s.mu.Unlock()
			}
		})
	}
	done.Wait()
	return s
}

// report fails for each kind of leak, and shows some of them.
func (s *sum) report(t *testing.T) {
	t.Helper()
	kinds := map[string][]*leak{}
	for _, l := range s.leaks {
		kinds[l.what] = append(kinds[l.what], l)
	}
	var names []string
	for name := range kinds {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		var b strings.Builder
		fmt.Fprintf(&b, "LEAK %s (%d)", name, len(kinds[name]))
		for _, l := range kinds[name][:min(shown, len(kinds[name]))] {
			fmt.Fprintf(&b, "\n    %v\n    %s; counted: %q", l.message, l.probe, l.answer.read["counted"])
		}
		t.Error(b.String())
	}
	for _, text := range s.silent {
		t.Errorf("no answer within %v: %s", answerTimeout, text)
	}
}
