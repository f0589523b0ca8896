package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// memoryStatistics stores the statistics of a single process, one report for each minute in
// which something happened.
type memoryStatistics struct {
	mu             sync.Mutex             // guards what follows
	minutes        map[int64]minuteReport // reports by minute
	changedMinutes map[int64]bool         // changed since the last sum
	totals         map[int64][]Tally      // by minute
}

func newMemoryStatistics() *memoryStatistics {
	return &memoryStatistics{minutes: map[int64]minuteReport{}, changedMinutes: map[int64]bool{}, totals: map[int64][]Tally{}}
}

// now implements statisticsStore.
func (d *memoryStatistics) now(context.Context) (time.Time, error) { return time.Now(), nil }

// report implements statisticsStore.
func (d *memoryStatistics) report(_ context.Context, _ string, minute int64, r minuteReport) (time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if now.Sub(minuteStart(minute)) > minuteOpenFor {
		return now, errClosed
	}
	d.minutes[minute], d.changedMinutes[minute] = r, true
	maps.DeleteFunc(d.minutes, func(m int64, _ minuteReport) bool { return now.Sub(minuteStart(m)) > 2*minuteOpenFor })
	maps.DeleteFunc(d.totals, func(m int64, _ []Tally) bool { return now.Sub(minuteStart(m)) > StatisticsRetention })
	return now, nil
}

// reports implements statisticsStore.
func (d *memoryStatistics) reports(_ context.Context, minute int64) ([]minuteReport, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, there := d.minutes[minute]
	if !there {
		return nil, nil
	}
	return []minuteReport{r}, nil
}

// changed implements statisticsStore.
func (d *memoryStatistics) changed(context.Context) ([]revision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []revision
	for _, m := range slices.Sorted(maps.Keys(d.changedMinutes)) {
		all = append(all, revision{minute: m})
	}
	clear(d.changedMinutes) // sum follows, and cannot fail
	return all, nil
}

// sum implements statisticsStore.
func (d *memoryStatistics) sum(_ context.Context, _ Term, of revision, sum []Tally) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.totals[of.minute] = sum
	return nil
}

// sums implements statisticsStore.
func (d *memoryStatistics) sums(_ context.Context, first, last int64) ([][]Tally, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([][]Tally, last-first+1)
	for m := first; m <= last; m++ {
		all[m-first] = d.totals[m]
	}
	return all, nil
}
