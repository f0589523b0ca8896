// Package redis measures what one decision costs Redis, in µs of its process's CPU:
// ours by each algorithm beside bare commands, redis_rate and Redisson's limiter, in
// turn on one server in one run. It is a module of its own, so that nobody who builds
// Weir needs the others.
//
//	go test -run '^$' -bench . -benchtime 1x
//
// At its end it prints what the algorithms are held to, and whether they hold it: ratios
// of cells of the same run, for a busy machine makes everything dearer. ROW and ONLY name
// a part of the rows and some of the variants.
//
// What is compared is not the same. redis_rate and gcra let permits flow back evenly,
// floor counts in fixed windows; token_bucket, sliding_log and Redisson's never let
// more than the rate through in any window. Several limits are several calls of all but
// ours and bare; all but ours take what one grants though another refuses. Each number is the least of
// several rounds.
package redis

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

const (
	rounds = 7
	keys   = 10_000
	size   = 32 // requests a call
)

func rate(count int64, window time.Duration) limiter.Rate {
	return limiter.Rate{Count: count, Window: window}
}

// A row is a situation in which all variants are measured.
type row struct {
	name  string
	rates []limiter.Rate
	size  int
	keys  int
	fresh bool // each key is new each time
	again bool // the same keys once more, and that is measured
	hot   bool // one key alone
	long  bool // three times as often: it is compared with another row
}

func rows() []row {
	minute, second := []limiter.Rate{rate(1, time.Minute)}, []limiter.Rate{rate(10, time.Second)}
	return []row{
		{name: "1/60s, new key", rates: minute, size: size, keys: keys, fresh: true},
		{name: "1/60s, refused", rates: minute, size: size, keys: keys, fresh: true, again: true},
		{name: "10/1s, 10,000 keys", rates: second, size: size, keys: keys},
		{name: "1000/1s, 10,000 keys", rates: []limiter.Rate{rate(1000, time.Second)}, size: size, keys: keys},
		{name: "hot key, 1000/1s", rates: []limiter.Rate{rate(1000, time.Second)}, size: size, keys: keys, hot: true},
		{name: "1 limit on one key", rates: []limiter.Rate{rate(100, time.Minute)}, size: size, keys: keys / 2, long: true},
		{name: "3 limits on one key", rates: []limiter.Rate{rate(10, time.Second), rate(100, time.Minute), rate(1000, time.Hour)}, size: size, keys: keys / 2, long: true},
		{name: "1 limit, refused", rates: minute, size: size, keys: keys / 2, fresh: true, again: true},
		{name: "3 limits, refused", rates: []limiter.Rate{rate(1, time.Minute), rate(1, time.Hour), rate(1, 24*time.Hour)}, size: size, keys: keys / 2, fresh: true, again: true},
		{name: "one per call, new key", rates: minute, size: 1, keys: keys / 4, fresh: true},
		{name: "one per call, 10/1s", rates: second, size: 1, keys: keys / 4},
		{name: "one per call, 3 limits", rates: []limiter.Rate{rate(10, time.Second), rate(100, time.Minute), rate(1000, time.Hour)}, size: 1, keys: keys / 8},
		{name: "12 per call, 10/1s", rates: second, size: 12, keys: keys},
		{name: "64 per call, 10/1s", rates: second, size: 64, keys: keys},
	}
}

// BenchmarkCost prints the table of CPU.
func BenchmarkCost(b *testing.B) {
	for range b.N {
		table := table{}
		for _, r := range rows() {
			if only := os.Getenv("ROW"); only == "" || strings.Contains(r.name, only) {
				table[r.name] = r.measure(b)
			}
		}
		show(table)
		if only := os.Getenv("ROW"); only == "" || strings.Contains("bytes", only) {
			measureBytes(b, table)
		}
		if only := os.Getenv("ROW"); os.Getenv("ONLY") == "" && (only == "" || strings.Contains("beside", only)) {
			measureFull(b, table)
			measureMirror(b, table)
		}
		showGoals(table)
	}
}

// A table has what was measured, by rows and variants.
type table map[string]map[string]float64

// set enters one cell.
func (t table) set(row, variant string, v float64) {
	if t[row] == nil {
		t[row] = map[string]float64{}
	}
	t[row][variant] = v
}

// measure runs all variants in turn, again and again, and returns the least that a
// decision of each cost.
func (r row) measure(b *testing.B) map[string]float64 {
	s := newStage(b)
	type contender struct {
		variant
		t *template
	}
	var all []contender
	for _, v := range variants() {
		only := os.Getenv("ONLY")
		if only != "" && !slices.Contains(strings.Split(only, ","), v.name) {
			continue
		}
		var t *template
		if a, err := limiter.ParseAlgorithm(v.name); r.hot && a == limiter.Cooldown && err == nil {
			continue // a cooldown lets one through at a time
		} else if r.hot && err == nil {
			t = hot(a, r.rates[0], r.size)(b, s)
		} else {
			t = v.call(b, s, r.rates, r.size)
		}
		if t != nil {
			all = append(all, contender{v, t})
		}
	}
	least := map[string]float64{}
	series := 1
	if r.long {
		series = 3
	}
	const each = rounds + 3 // until the state is what it stays
	for i := range series * each {
		round := i % each
		if round == 0 {
			s.do("flushall")
		}
		for _, c := range all {
			if r.fresh {
				s.do("flushall")
			}
			if c.prepare != nil && (r.fresh || round == 0) {
				names := make([]string, r.keys)
				for i := range names {
					names[i] = keyText(i)
				}
				c.prepare(s, r.rates, names)
			}
			pass, decided := r.pass(c.t)
			if r.again {
				s.send(pass)
				pass, decided = r.pass(c.t)
			}
			before := s.cpu()
			s.send(pass)
			used := (s.cpu() - before) / float64(decided)
			if was, ok := least[c.name]; round >= 3 && (!ok || used < was) {
				least[c.name] = used
			}
		}
	}
	return least
}

// pass is calls over all keys, or as many over one.
func (r row) pass(t *template) (out []byte, decided int) {
	for first := 0; first < r.keys; first += t.decided {
		out = t.with(out, func(i int) string {
			if r.hot {
				return keyText(0)
			}
			return keyText((first + i) % r.keys)
		}, newID)
		decided += t.decided
	}
	return out, decided
}

// show prints µs a decision, and in parentheses the ratio to token_bucket.
func show(table table) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	var names []string
	for _, v := range variants() {
		names = append(names, v.name)
	}
	fmt.Fprintln(w, "\nµs of Redis (x token_bucket)\t"+strings.Join(names, "\t")+"\t")
	for _, r := range rows() {
		line := r.name
		for _, name := range names {
			v, ok := table[r.name][name]
			switch {
			case !ok:
				line += "\t-"
			case name == "token_bucket":
				line += fmt.Sprintf("\t%.2f", v)
			default:
				line += fmt.Sprintf("\t%.2f (%.2f)", v, v/table[r.name]["token_bucket"])
			}
		}
		if table[r.name] != nil {
			fmt.Fprintln(w, line+"\t")
		}
	}
	fit(w, names, table)
	w.Flush()
}

// What a call costs by itself, and what each request of it does: see fit.
const perCall, perRequest = "a (a call)", "b (a request)"

// fit prints a and b of a + b*n, the cost of a call of n requests, by least squares
// of the relative errors over n = 1, 12, 32, 64.
func fit(w *tabwriter.Writer, names []string, table table) {
	at := []float64{1, 12, 32, 64}
	rows := []string{"one per call, 10/1s", "12 per call, 10/1s", "10/1s, 10,000 keys", "64 per call, 10/1s"}
	as, bs := perCall, perRequest
	table[perCall], table[perRequest] = map[string]float64{}, map[string]float64{}
	for _, name := range names {
		var n, x, y, xx, xy float64
		for i, r := range rows {
			cost := table[r][name] * at[i]
			if cost == 0 {
				n = math.NaN()
			}
			weight := 1 / (cost * cost)
			n, x, y, xx, xy = n+weight, x+weight*at[i], y+weight*cost, xx+weight*at[i]*at[i], xy+weight*at[i]*cost
		}
		slope := (n*xy - x*y) / (n*xx - x*x)
		if math.IsNaN(slope) || name == "redisson" || name == "redis_rate" {
			as, bs = as+"\t-", bs+"\t-"
			continue
		}
		table[perCall][name], table[perRequest][name] = (y-slope*x)/n, slope
		as, bs = as+fmt.Sprintf("\t%.1f", (y-slope*x)/n), bs+fmt.Sprintf("\t%.1f", slope)
	}
	fmt.Fprintln(w, as+"\t")
	fmt.Fprintln(w, bs+"\t")
}
