package dashboard

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// gaugeInterval is the minimum interval between two readings of the metrics, for all viewers
	// together; gaugeWindow is the time over which rates are computed.
	gaugeInterval    = time.Second
	gaugeWindow      = 30 * time.Second
	maxGaugeReadings = 64
)

// A rateGauge computes this node's own rates from its metrics.
type rateGauge struct {
	from prometheus.Gatherer

	mu       sync.Mutex // guards what follows; held while metrics are gathered, so that they are gathered once
	readings []reading  // oldest first, at most maxGaugeReadings
}

func newRateGauge(from prometheus.Gatherer) *rateGauge { return &rateGauge{from: from} }

// A reading holds the counters of this node at one moment.
type reading struct {
	At        time.Time
	Requests  float64
	Errors    float64 // responses with status 5xx
	Calls     float64 // to the shared store
	Seconds   float64 // that those took
	CallFails float64
	Fallbacks float64 // requests decided without the store
}

// Rates are the rates of this node in the last seconds. All but the counts since the start are unknown
// before there are two readings.
type Rates struct {
	Requests   int64         // since the start
	Errors     int64         // since the start
	Over       time.Duration // the time between the readings; 0 if there is only one
	PerSecond  float64
	ErrorsNew  int64
	Calls      int64   // to the store
	StoreMS    float64 // mean duration of those
	StoreFails int64
	Fallbacks  int64
}

// Known reports whether there are rates.
func (r Rates) Known() bool { return r.Over > 0 }

// read returns the current rates.
func (g *rateGauge) read(now time.Time) (Rates, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.readings); n == 0 || now.Sub(g.readings[n-1].At) >= gaugeInterval {
		families, err := g.from.Gather()
		if err != nil {
			return Rates{}, err
		}
		for n > 0 && (n >= maxGaugeReadings || now.Sub(g.readings[0].At) > gaugeWindow) {
			g.readings, n = g.readings[1:], n-1
		}
		g.readings = append(g.readings, readingOf(now, families))
	}
	return g.readings[len(g.readings)-1].since(g.readings[0]), nil
}

// since returns the rates since an earlier reading.
func (r reading) since(then reading) Rates {
	rates := Rates{Requests: int64(r.Requests), Errors: int64(r.Errors)}
	d := r.At.Sub(then.At)
	if d <= 0 {
		return rates
	}
	rates.Over, rates.PerSecond = d, (r.Requests-then.Requests)/d.Seconds()
	rates.ErrorsNew, rates.Fallbacks = int64(r.Errors-then.Errors), int64(r.Fallbacks-then.Fallbacks)
	rates.Calls, rates.StoreFails = int64(r.Calls-then.Calls), int64(r.CallFails-then.CallFails)
	if calls := r.Calls - then.Calls; calls > 0 {
		rates.StoreMS = 1000 * (r.Seconds - then.Seconds) / calls
	}
	return rates
}

// readingOf adds up the metrics.
func readingOf(now time.Time, families []*dto.MetricFamily) reading {
	r := reading{At: now}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "weir_requests_total":
				r.Requests += m.GetCounter().GetValue()
				if strings.HasPrefix(label(m, "code"), "5") {
					r.Errors += m.GetCounter().GetValue()
				}
			case "weir_store_duration_seconds":
				r.Calls += float64(m.GetHistogram().GetSampleCount())
				r.Seconds += m.GetHistogram().GetSampleSum()
			case "weir_store_errors_total":
				r.CallFails += m.GetCounter().GetValue()
			case "weir_store_fallback_total":
				r.Fallbacks += m.GetCounter().GetValue()
			}
		}
	}
	return r
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
