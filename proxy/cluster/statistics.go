package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// reportInterval is how often a node reports; the counts since the last
	// report are lost if a node is killed. It is also the length of the steps in which a
	// minute is counted.
	reportInterval = 5 * time.Second
	stepsPerMinute = int64(time.Minute / reportInterval)
	// minuteOpenFor is how long reports for a minute are accepted, so that counts are
	// not lost while Redis is unreachable.
	minuteOpenFor = time.Hour
	// StatisticsRetention is how long statistics are kept.
	StatisticsRetention = 24 * time.Hour
	// maxSeries is the maximum number of series in a report; the requests of the rest are
	// aggregated.
	maxSeries = 2000
	// maxNear is how many limits it tells of that a key has used up.
	maxNear = 50
)

// otherSeries is the series of all requests beyond maxSeries.
func otherSeries() proxy.Series { return proxy.Series{Route: "(others)"} }

// errClosed reports that reports for a minute are no longer accepted.
var errClosed = errors.New("minute closed")

// A Tally is a series and its count.
type Tally struct {
	proxy.Series
	N int64 `json:"n"`
	// Steps are, in the report of a node, the parts of N by steps of reportInterval, without the last
	// ones that are 0. Reports of older versions, and sums, have none.
	Steps []int64 `json:"steps,omitempty"`
}

// A minuteReport is the report of one node for one minute.
type minuteReport struct {
	// At is the store's time up to which the minute was counted, in milliseconds since 1970; 0 in
	// reports of older versions.
	At      int64        `json:"at,omitempty"`
	Tallies []Tally      `json:"tallies"`
	Near    []proxy.Near `json:"near,omitempty"`
}

// Statistics count, for each minute and all nodes together, how often each
// series occurred.
//
// Every node periodically reports its own counts for each minute (by the store's
// clock), each time replacing its last report; the leader adds the reports up,
// each time replacing the last sum. So nothing is counted twice, even if a report
// or a sum is written twice, and nothing is lost except what a killed node had not
// reported yet. All methods except Run and Flush are safe for concurrent use.
type Statistics struct {
	node    string
	figures Figures
	state   state

	clockOffset time.Duration // offset of the store's clock
	clockKnown  bool          // it is known
	collectedAt time.Time     // time of the last collect
	last        map[proxy.Series]int64
	minutes     map[int64]*minuteCounts
}

// Figures gives access to the counters of a proxy; *proxy.Proxy implements it.
type Figures interface {
	// Counts returns the count of each series since the start of the process.
	Counts() map[proxy.Series]int64
	// Near returns the keys that have used most of a limit since the last call.
	Near() []proxy.Near
}

// minuteCounts are the counts of this node in one minute.
type minuteCounts struct {
	counts   map[proxy.Series][stepsPerMinute]int64
	near     map[string]proxy.Near // by ROUTE.LIMIT and window
	reported bool                  // the current counts have been reported
}

// NewStatistics returns the statistics of a node of a cluster or, if rdb is nil,
// of a single process.
func NewStatistics(rdb redis.UniversalClient, prefix, node string, figures Figures) *Statistics {
	return &Statistics{
		node: node, figures: figures, state: newState(rdb, prefix), last: map[proxy.Series]int64{}, minutes: map[int64]*minuteCounts{}, collectedAt: time.Now(),
	}
}

// Run reports until ctx is done, at the end of each step.
func (s *Statistics) Run(ctx context.Context) {
	for ctx.Err() == nil {
		s.Flush(ctx) // on failure reported next time
		now := s.time()
		select {
		case <-time.After(stepStart(stepOf(now) + 1).Sub(now)):
		case <-ctx.Done():
		}
	}
}

// Flush reports all counts up to now. After an error some are not reported yet.
func (s *Statistics) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	if !s.clockKnown {
		if now, err := s.state.now(ctx); err == nil {
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

// time is the store's, as far as ahead is known.
func (s *Statistics) time() time.Time { return time.Now().Add(s.clockOffset) }

func (s *Statistics) adjust(now time.Time) { s.clockOffset, s.clockKnown = time.Until(now), true }

// collect adds what has happened since the last call to the counts of its step. Run calls it at the
// end of each step; because the store's clock is known to a few milliseconds only, a call may
// nevertheless find a time that is part of several steps, and divides the counts.
func (s *Statistics) collect() {
	now, counts := s.time(), s.figures.Counts()
	at := s.collectedAt.Add(s.clockOffset)
	if now.Sub(at) > 2*reportInterval || at.After(now) {
		at = now // the process was suspended, or a clock was set
	}
	first, last := stepOf(at), stepOf(now)
	for series, n := range counts {
		n -= s.last[series]
		end := now
		for step := last; step > first && n > 0; step-- {
			from := stepStart(step)
			part := int64(math.Round(float64(n) * float64(end.Sub(from)) / float64(end.Sub(at))))
			s.add(series, step, part)
			n, end = n-part, from
		}
		s.add(series, first, n)
	}
	for _, near := range s.figures.Near() {
		s.minuteOf(first / stepsPerMinute).noteNear(near)
	}
	s.last, s.collectedAt = counts, time.Now()
	maps.DeleteFunc(s.minutes, func(minute int64, _ *minuteCounts) bool { return now.Sub(minuteStart(minute)) > minuteOpenFor })
}

// stepOf returns the number of the step of a time since 1970, and stepStart the start of a step.
func stepOf(t time.Time) int64 { return t.Unix() / int64(reportInterval/time.Second) }

func stepStart(step int64) time.Time {
	return time.Unix(step*int64(reportInterval/time.Second), 0).UTC()
}

// minuteStart returns the start of a minute.
func minuteStart(minute int64) time.Time { return time.Unix(minute*60, 0).UTC() }

// add adds n requests of a step.
func (s *Statistics) add(series proxy.Series, step, n int64) {
	if n <= 0 {
		return
	}
	m := s.minuteOf(step / stepsPerMinute)
	if _, known := m.counts[series]; !known && len(m.counts) >= maxSeries {
		if series.Limit != "" {
			return // what it has counted is not of requests
		}
		series = otherSeries()
	}
	steps := m.counts[series]
	steps[step%stepsPerMinute] += n
	m.counts[series], m.reported = steps, false
}

func (s *Statistics) minuteOf(minute int64) *minuteCounts {
	p := s.minutes[minute]
	if p == nil {
		p = &minuteCounts{counts: map[proxy.Series][stepsPerMinute]int64{}, near: map[string]proxy.Near{}}
		s.minutes[minute] = p
	}
	return p
}

// tallies returns the counts in a fixed order.
func (m *minuteCounts) tallies() []Tally {
	out := make([]Tally, 0, len(m.counts))
	for series, steps := range m.counts {
		t := Tally{Series: series}
		for i, n := range steps {
			if t.N += n; n > 0 {
				t.Steps = steps[:i+1]
			}
		}
		out = append(out, t)
	}
	return sorted(out)
}

// noteNear records the key that has used most of a limit and window.
func (m *minuteCounts) noteNear(near proxy.Near) {
	name := near.Route + "." + near.Limit + ":" + near.Window
	if known, found := m.near[name]; near.IsNearer(known) && (found || len(m.near) < maxNear) {
		m.near[name] = near
		m.reported = false
	}
}

// report reports the counts of a minute, and removes them once they are final.
func (s *Statistics) report(ctx context.Context, minute int64) error {
	p := s.minutes[minute]
	if !p.reported {
		at := min(s.collectedAt.Add(s.clockOffset).UnixMilli(), minuteStart(minute+1).UnixMilli())
		now, err := s.state.report(ctx, s.node, minute, minuteReport{At: at, Tallies: p.tallies(), Near: slices.Collect(maps.Values(p.near))})
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

// tallies returns counts in a fixed order.
func tallies(counts map[proxy.Series]int64) []Tally {
	return sorted(view.Each(slices.Collect(maps.Keys(counts)), func(s proxy.Series) Tally { return Tally{Series: s, N: counts[s]} }))
}

func sorted(all []Tally) []Tally {
	slices.SortFunc(all, func(a, b Tally) int { return a.compare(b) })
	return all
}

// maxChangedMinutes is how many minutes are added up in one run; the rest
// follows.
const maxChangedMinutes = 100

// minuteKey returns the name of the key of the reports of a minute.
func minuteKey(minute int64) string { return "minute:" + strconv.FormatInt(minute, 10) }

// totalKey returns the name of the key of the sum of a minute.
func totalKey(minute int64) string { return "statistics:" + strconv.FormatInt(minute, 10) }

// now implements state.
func (r redisState) now(ctx context.Context) (time.Time, error) {
	return r.rdb.Time(ctx).Result()
}

// report implements state.
func (r redisState) report(ctx context.Context, node string, minute int64, report minuteReport) (time.Time, error) {
	reply, err := r.run(ctx, "report", []string{minuteKey(minute), "minutes"}, minute, node, encode(report), minuteOpenFor.Milliseconds()).Int64Slice()
	switch {
	case err != nil:
		return time.Time{}, err
	case len(reply) != 2:
		return time.Time{}, errReply
	case reply[1] == 0:
		err = errClosed
	}
	return time.UnixMilli(reply[0]), err
}

// reports implements state.
func (r redisState) reports(ctx context.Context, minute int64) (map[string]minuteReport, error) {
	texts, err := r.rdb.HGetAll(ctx, r.prefix+minuteKey(minute)).Result()
	if err != nil {
		return nil, fmt.Errorf("read reports: %w", err)
	}
	all := make(map[string]minuteReport, len(texts))
	for node, text := range texts {
		if all[node], err = decode[minuteReport](text); err != nil {
			return nil, fmt.Errorf("read reports: %w", err)
		}
	}
	return all, nil
}

// addUp implements state.
func (r redisState) addUp(ctx context.Context, t Term) (minutes int, err error) {
	changed, err := r.rdb.ZRangeWithScores(ctx, r.prefix+"minutes", 0, maxChangedMinutes-1).Result()
	if err != nil {
		return 0, fmt.Errorf("read changed minutes: %w", err)
	}
	for _, z := range changed { // with the version of its reports
		text, _ := z.Member.(string)
		minute, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read changed minutes: %w: %w", errReply, err)
		}
		reports, err := r.reports(ctx, minute)
		if err != nil {
			return 0, err
		}
		keys, version := []string{totalKey(minute), "minutes"}, strconv.FormatFloat(z.Score, 'f', -1, 64)
		if _, err := r.runLeading(ctx, t, "sum", keys, minute, encode(sumOf(reports)), StatisticsRetention.Milliseconds(), version); err != nil {
			return 0, fmt.Errorf("write a sum: %w", err)
		}
	}
	return len(changed), nil
}

// sums implements state.
func (r redisState) sums(ctx context.Context, first, last int64) ([][]Tally, error) {
	var keys []string
	for m := first; m <= last; m++ {
		keys = append(keys, r.prefix+totalKey(m))
	}
	texts, err := r.rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("read statistics: %w", err)
	}
	all := make([][]Tally, len(texts))
	for i, v := range texts {
		text, there := v.(string)
		if !there {
			continue
		}
		if all[i], err = decode[[]Tally](text); err != nil {
			return nil, fmt.Errorf("read statistics: %w", err)
		}
	}
	return all, nil
}
