package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy"
)

const (
	// reportInterval is how often a node reports; what a node that is killed has
	// counted since is lost.
	reportInterval = 5 * time.Second
	// minuteOpenFor is for how long a minute takes reports, so that what a node counts
	// while Redis is away is not lost.
	minuteOpenFor = time.Hour
	// Kept is how long statistics are kept.
	Kept = 24 * time.Hour
	// maxSeries is how many series a node reports for one minute; the rest is
	// counted together.
	maxSeries = 2000
	// maxNear is how many limits it tells of that a key has used up.
	maxNear = 50
)

// others is what everything beyond maxSeries is counted under.
func others() proxy.Series { return proxy.Series{Route: "(others)"} }

// errClosed says that a minute takes no reports any more.
var errClosed = errors.New("minute closed")

// A Tally is one series and how often it happened.
type Tally struct {
	proxy.Series
	N int64 `json:"n"`
}

// A statisticsStore is where what the nodes count is written.
type statisticsStore interface {
	now(ctx context.Context) (time.Time, error)
	// report replaces what node has reported of a minute, and returns the store's
	// time. An error that is errClosed says that it never will be taken.
	report(ctx context.Context, node string, minute int64, r minuteReport) (time.Time, error)
	// reports are those of all nodes.
	reports(ctx context.Context, minute int64) ([]minuteReport, error)
	// changed are the minutes of which there are reports that are not in the sum.
	changed(ctx context.Context) ([]revision, error)
	// sum replaces the sum of a minute, unless another leads: then ErrDeposed.
	sum(ctx context.Context, t Term, of revision, sum []Tally) error
	// sums are those of the minutes from first to last; none is nil.
	sums(ctx context.Context, first, last int64) ([][]Tally, error)
}

// A minuteReport is what one node says of one minute.
type minuteReport struct {
	Tallies []Tally      `json:"tallies"`
	Near    []proxy.Near `json:"near,omitempty"`
}

// A revision is a minute as of some change of it.
type revision struct {
	minute int64 // since 1970
	change float64
}

// Statistics tell for each minute, all nodes together, how often what happened.
//
// Every node reports its own counts for each minute, by the store's clock, again
// and again, each time in place of its last report; the leader adds the reports
// up, each time in place of the last sum. So nothing is counted twice, whatever is
// sent or done twice and whoever leads, and nothing is lost but what a killed node
// had not reported yet. All methods are safe for concurrent use but Run and Flush,
// which belong to one goroutine.
type Statistics struct {
	node    string
	figures Figures
	store   statisticsStore

	ahead   time.Duration // by which the store's clock is ahead of ours
	asked   bool          // it is known
	looked  time.Time     // when counts were looked at last
	last    map[proxy.Series]int64
	minutes map[int64]*minuteCounts
}

// Figures are what a proxy counts; *proxy.Proxy has them.
type Figures interface {
	// Counts is how often each has happened since the process began.
	Counts() map[proxy.Series]int64
	// Near are keys that have used most of a limit, since it was asked last.
	Near() []proxy.Near
}

// minuteCounts are what this node has counted in one minute.
type minuteCounts struct {
	counts   map[proxy.Series]int64
	near     map[string]proxy.Near // by ROUTE.LIMIT and window
	reported bool                  // as it is now
}

// NewStatistics makes the statistics of a node of a cluster, or, when rdb is nil,
// of a process that shares nothing.
func NewStatistics(rdb redis.UniversalClient, prefix, node string, figures Figures) *Statistics {
	s := &Statistics{node: node, figures: figures, last: map[proxy.Series]int64{}, minutes: map[int64]*minuteCounts{}, looked: time.Now()}
	if rdb == nil {
		s.store = newMemoryStatistics()
	} else {
		s.store = newRedisStatistics(rdb, prefix)
	}
	return s
}

// Run reports until ctx is done: every few seconds and when a minute ends.
func (s *Statistics) Run(ctx context.Context) {
	for {
		s.Flush(ctx) // what could not be reported is reported next time
		now := s.time()
		next := min(reportInterval, now.Truncate(time.Minute).Add(time.Minute).Sub(now))
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Flush reports what was counted until now. An error says that some of it is not
// reported yet.
func (s *Statistics) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	if !s.asked {
		if now, err := s.store.now(ctx); err == nil {
			s.adjust(now)
		}
	}
	s.collect()
	for _, minute := range slices.Sorted(maps.Keys(s.minutes)) {
		if err := s.report(ctx, minute); err != nil {
			return err
		}
	}
	return nil
}

// time is the store's, as far as it is known.
func (s *Statistics) time() time.Time { return time.Now().Add(s.ahead) }

func (s *Statistics) adjust(now time.Time) { s.ahead, s.asked = time.Until(now), true }

// collect writes what has happened since the last look into the counts of the minute in
// which that was.
func (s *Statistics) collect() {
	now, counts := s.time(), s.figures.Counts()
	at := s.looked.Add(s.ahead)
	if now.Sub(at) > 2*reportInterval || at.After(now) {
		at = now // the process was stopped, or a clock was set
	}
	for series, n := range counts {
		if n > s.last[series] {
			s.minuteOf(at.Unix()/60).add(series, n-s.last[series])
		}
	}
	for _, near := range s.figures.Near() {
		s.minuteOf(at.Unix() / 60).noteNear(near)
	}
	s.last, s.looked = counts, time.Now()
	maps.DeleteFunc(s.minutes, func(minute int64, _ *minuteCounts) bool { return now.Sub(minuteStart(minute)) > minuteOpenFor })
}

// minuteStart is when a minute begins.
func minuteStart(minute int64) time.Time { return time.Unix(minute*60, 0).UTC() }

func (s *Statistics) minuteOf(minute int64) *minuteCounts {
	p := s.minutes[minute]
	if p == nil {
		p = &minuteCounts{counts: map[proxy.Series]int64{}, near: map[string]proxy.Near{}}
		s.minutes[minute] = p
	}
	return p
}

func (p *minuteCounts) add(series proxy.Series, n int64) {
	if _, known := p.counts[series]; !known && len(p.counts) >= maxSeries {
		series = others()
	}
	p.counts[series] += n
	p.reported = false
}

// noteNear remembers the key that has used most of a limit and window.
func (p *minuteCounts) noteNear(near proxy.Near) {
	name := near.Route + "." + near.Limit + ":" + near.Window
	if known, found := p.near[name]; near.Used > known.Used && (found || len(p.near) < maxNear) {
		p.near[name] = near
		p.reported = false
	}
}

// report sends the counts of a minute, and forgets them when they will not change any more.
func (s *Statistics) report(ctx context.Context, minute int64) error {
	p := s.minutes[minute]
	if !p.reported {
		now, err := s.store.report(ctx, s.node, minute, minuteReport{Tallies: tallies(p.counts), Near: slices.Collect(maps.Values(p.near))})
		if err != nil && !errors.Is(err, errClosed) {
			return fmt.Errorf("report a minute: %w", err)
		}
		p.reported = true
		s.adjust(now)
	}
	if s.time().Unix()/60 > minute+1 {
		delete(s.minutes, minute)
	}
	return nil
}

// tallies are counts in a fixed order.
func tallies(counts map[proxy.Series]int64) []Tally {
	out := make([]Tally, 0, len(counts))
	for series, n := range counts {
		out = append(out, Tally{series, n})
	}
	slices.SortFunc(out, func(a, b Tally) int { return a.compare(b) })
	return out
}
