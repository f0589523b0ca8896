package simulate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// runBounded simulates a log within bounds.
func runBounded(t *testing.T, b Bounds, log string) (*Report, error) {
	t.Helper()
	o := Options{Format: Auto, Config: mustLoad(t, file), Bounds: b, Logs: []Log{{"log", strings.NewReader(log)}}}
	var err error
	if o.Names, err = NewNames(nil, o.Config); err != nil {
		t.Fatal(err)
	}
	return Run(t.Context(), o)
}

// logOf is a log of so many requests, a hundred a second, each of another client.
func logOf(requests int) string {
	var b strings.Builder
	for i := range requests {
		b.WriteString(strings.Replace(nginxLine(float64(i)/100, "POST", "/send", fmt.Sprint(i)), "192.0.2.1", fmt.Sprintf("10.0.%d.%d", i/256, i%256), 1))
	}
	return b.String()
}

// What is unpacked counts: of a few bytes gzip makes many.
func TestRun_ReadsNoMoreThanItMay(t *testing.T) {
	log := logOf(1000)
	for _, c := range []struct {
		name, log string
		most      int
		want      error
	}{
		{"as much", log, len(log), nil},
		{"one more", log, len(log) - 1, ErrTooLong},
		{"as much, packed", compressed(log), len(log), nil},
		{"one more, packed", compressed(log), len(log) - 1, ErrTooLong},
		{"one line", strings.Repeat("a", 10<<20), 1 << 20, ErrTooLong},
	} {
		r, err := runBounded(t, Bounds{MaxBytes: int64(c.most)}, c.log)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", c.name, err, c.want)
		}
		if c.want == nil && r.Requests != 1000 {
			t.Errorf("%s: %d requests", c.name, r.Requests)
		}
	}
}

// Whoever wants the processor waits for a few lines, also while lines are only read, and
// when all have been read.
func TestRun_IsAtAPace(t *testing.T) {
	const requests = 20_000 // in less time than lines wait for earlier ones
	log := strings.Repeat(nginxLine(1, "POST", "/send", "1"), requests)
	calls := 0
	r, err := runBounded(t, Bounds{Pace: func() error { calls++; return nil }}, log)
	if want := len(log)/readSize + requests/paceInterval; err != nil || calls < want || r.Requests != requests {
		t.Errorf("it paused %d times, %v; want %d at least", calls, err, want)
	}
	enough := errors.New("enough")
	for _, last := range []int{1, 2, calls / 4, calls - 1} {
		n := 0
		_, err := runBounded(t, Bounds{Pace: func() error {
			if n++; n >= last {
				return enough
			}
			return nil
		}}, log)
		if !errors.Is(err, enough) || n != last {
			t.Errorf("it goes on for %d pauses, %v; want %d", n, err, last)
		}
	}
}

func TestRun_TellsThatThereWasHardlyRoom(t *testing.T) {
	r, err := runBounded(t, Bounds{MaxKeys: 1000, MaxStore: 64 << 20}, logOf(5000))
	if err != nil || !strings.Contains(strings.Join(r.Notes, "\n"), "almost fills the memory") {
		t.Errorf("%v, %d keys, %q", err, r.Result.Keys, r.Notes)
	}
	if r, err = runBounded(t, Bounds{MaxKeys: 10_000, MaxStore: 64 << 20}, logOf(50)); err != nil || strings.Contains(strings.Join(r.Notes, "\n"), "almost fills the memory") {
		t.Errorf("%v, %d keys, %q", err, r.Result.Keys, r.Notes)
	}
}
