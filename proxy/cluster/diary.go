package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// A diary is the book of a process that shares nothing. It keeps a page for each
// minute in which something happened.
type diary struct {
	mu    sync.Mutex        // guards what follows
	pages map[int64]report  // by minute: what this process reports
	news  map[int64]bool    // not added up yet
	total map[int64][]Tally // by minute
}

func newDiary() *diary {
	return &diary{pages: map[int64]report{}, news: map[int64]bool{}, total: map[int64][]Tally{}}
}

// now implements book.
func (d *diary) now(context.Context) (time.Time, error) { return time.Now(), nil }

// report implements book.
func (d *diary) report(_ context.Context, _ string, minute int64, r report) (time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if now.Sub(begin(minute)) > openFor {
		return now, errClosed
	}
	d.pages[minute], d.news[minute] = r, true
	maps.DeleteFunc(d.pages, func(m int64, _ report) bool { return now.Sub(begin(m)) > 2*openFor })
	maps.DeleteFunc(d.total, func(m int64, _ []Tally) bool { return now.Sub(begin(m)) > Kept })
	return now, nil
}

// reports implements book.
func (d *diary) reports(_ context.Context, minute int64) ([]report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, there := d.pages[minute]
	if !there {
		return nil, nil
	}
	return []report{r}, nil
}

// changed implements book.
func (d *diary) changed(context.Context) ([]edition, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []edition
	for _, m := range slices.Sorted(maps.Keys(d.news)) {
		all = append(all, edition{minute: m})
	}
	clear(d.news) // sum follows, and cannot fail
	return all, nil
}

// sum implements book.
func (d *diary) sum(_ context.Context, _ Term, of edition, sum []Tally) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total[of.minute] = sum
	return nil
}

// sums implements book.
func (d *diary) sums(_ context.Context, first, last int64) ([][]Tally, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([][]Tally, last-first+1)
	for m := first; m <= last; m++ {
		all[m-first] = d.total[m]
	}
	return all, nil
}
