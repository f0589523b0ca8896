package proxy

import (
	"cmp"
	"time"
)

// events is a queue of scheduled events, ordered by time. Events with the same time are ordered by
// insertion.
type events struct {
	heap  []event
	added int64
}

type event struct {
	at    time.Time
	order int64
	do    func()
}

func (e event) before(other event) bool {
	return cmp.Or(e.at.Compare(other.at), cmp.Compare(e.order, other.order)) < 0
}

// add schedules do.
func (e *events) add(at time.Time, do func()) {
	e.added++
	e.heap = append(e.heap, event{at, e.added, do})
	for i := len(e.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !e.heap[i].before(e.heap[parent]) {
			break
		}
		e.heap[i], e.heap[parent] = e.heap[parent], e.heap[i]
		i = parent
	}
}

// next removes and returns the first event, unless it is later than now.
func (e *events) next(now time.Time) (first event, due bool) {
	if len(e.heap) == 0 || e.heap[0].at.After(now) {
		return event{}, false
	}
	first = e.heap[0]
	last := len(e.heap) - 1
	e.heap[0], e.heap[last] = e.heap[last], event{}
	e.heap = e.heap[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if e.heap[child].before(e.heap[least]) {
				least = child
			}
		}
		if least == i {
			return first, true
		}
		e.heap[i], e.heap[least] = e.heap[least], e.heap[i]
		i = least
	}
}
