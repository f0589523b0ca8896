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
func (s *memoryStatistics) now(context.Context) (time.Time, error) { return time.Now(), nil }

// report implements statisticsStore.
func (s *memoryStatistics) report(_ context.Context, _ string, minute int64, r minuteReport) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(minuteStart(minute)) > minuteOpenFor {
		return now, errClosed
	}
	s.minutes[minute], s.changedMinutes[minute] = r, true
	maps.DeleteFunc(s.minutes, func(m int64, _ minuteReport) bool { return now.Sub(minuteStart(m)) > 2*minuteOpenFor })
	maps.DeleteFunc(s.totals, func(m int64, _ []Tally) bool { return now.Sub(minuteStart(m)) > StatisticsRetention })
	return now, nil
}

// reports implements statisticsStore.
func (s *memoryStatistics) reports(_ context.Context, minute int64) (map[string]minuteReport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, there := s.minutes[minute]
	if !there {
		return nil, nil
	}
	return map[string]minuteReport{"": r}, nil
}

// changed implements statisticsStore.
func (s *memoryStatistics) changed(context.Context) ([]revision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []revision
	for _, m := range slices.Sorted(maps.Keys(s.changedMinutes)) {
		all = append(all, revision{minute: m})
	}
	clear(s.changedMinutes) // sum follows, and cannot fail
	return all, nil
}

// sum implements statisticsStore.
func (s *memoryStatistics) sum(_ context.Context, _ Term, of revision, sum []Tally) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totals[of.minute] = sum
	return nil
}

// sums implements statisticsStore.
func (s *memoryStatistics) sums(_ context.Context, first, last int64) ([][]Tally, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([][]Tally, last-first+1)
	for m := first; m <= last; m++ {
		all[m-first] = s.totals[m]
	}
	return all, nil
}
