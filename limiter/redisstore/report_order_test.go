package redisstore

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// What is sent, and what expires, costs no more than it is, also of very many windows that are on nodes of their own; none
// is sent twice, or forgotten.
func TestReports_SendingCostsWhatIsSent(t *testing.T) {
	const windows = 10_000
	l := &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 9, Window: time.Hour}}
	claim := func(i int) []limiter.Claim {
		c := limiter.Claim{Limit: l, Cost: 1}
		binary.LittleEndian.PutUint64(c.Key[:], uint64(i))
		return []limiter.Claim{c}
	}
	r, at := newReports(), time.UnixMilli(1_800_000_000_000)
	began := time.Now()
	for i := range windows {
		r.add(at, claim(i), limiter.Permit{ID: newID(), At: at})
	}
	adding := time.Since(began)
	began = time.Now()
	sent, failed := map[limiter.Key]int{}, 0
	for all := r.startSending(nil, slotOf); len(all) > 0; all = r.startSending(nil, slotOf) {
		if failed++; failed%3 == 0 { // its node is away
			r.keep(all)
			continue
		}
		for _, one := range all {
			sent[one.claim.Key]++
		}
		r.tell(all, at, at.UnixMilli())
		r.remove(all, &r.reported)
	}
	if sending := time.Since(began); sending > 30*adding {
		t.Errorf("%d windows are added in %v and sent in %v", windows, adding, sending)
	}
	if len(sent) != windows || r.windows.Load() != 0 || r.order.Len() != 0 || len(r.byWindow) != 0 || r.reported.Load() != windows {
		t.Errorf("%d windows sent, %d, %d, %d left; %d permits reported", len(sent), r.windows.Load(), r.order.Len(), len(r.byWindow), r.reported.Load())
	}
	for i := range maxReports + 100 {
		r.add(at.Add(time.Duration(i)*time.Second), claim(i), limiter.Permit{ID: newID(), At: at})
	}
	if n := len(r.byWindow); n > maxReports || n < maxReports-16 || r.order.Len() != n || r.dropped.Load() != 0 {
		t.Errorf("%d windows wait, %d in order, %d permits dropped; want up to %d: the oldest have expired", len(r.byWindow), r.order.Len(), r.dropped.Load(), maxReports)
	}
}
