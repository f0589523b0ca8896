package proxy

import "time"

// maxSteps is the maximum number of time steps of a Replay.
const maxSteps = 240

// An axis divides the time of a Replay into steps, initially of one second. Their length is doubled
// whenever there would be more than maxSteps.
type axis struct {
	start time.Time
	step  time.Duration
}

func (a *axis) begin(now time.Time) { a.start, a.step = now.Truncate(time.Second), time.Second }

// A series counts requests by time step.
type series struct{ passed, refused []int64 }

func (s *series) pass(step int)   { s.passed = incrementAt(s.passed, step) }
func (s *series) refuse(step int) { s.refused = incrementAt(s.refused, step) }

// incrementAt returns counts with the count at step increased by one.
func incrementAt(counts []int64, step int) []int64 {
	for len(counts) <= step {
		counts = append(counts, 0)
	}
	counts[step]++
	return counts
}

// halve merges pairs of adjacent steps.
func (s *series) halve() {
	for _, counts := range []*[]int64{&s.passed, &s.refused} {
		joined := (*counts)[:0]
		for i := 0; i < len(*counts); i += 2 {
			n := (*counts)[i]
			if i+1 < len(*counts) {
				n += (*counts)[i+1]
			}
			joined = append(joined, n)
		}
		*counts = joined
	}
}

func (s *series) result() ReplaySeries {
	return ReplaySeries{Passed: append([]int64{}, s.passed...), Refused: append([]int64{}, s.refused...)}
}

// step returns the step of now, which must not be before the start.
func (t *tallies) step(now time.Time) int {
	for now.Sub(t.axis.start) >= maxSteps*t.axis.step {
		t.axis.step *= 2
		for _, rt := range t.routes {
			rt.series.halve()
			for _, l := range rt.limits {
				l.series.halve()
			}
		}
	}
	return int(now.Sub(t.axis.start) / t.axis.step)
}
