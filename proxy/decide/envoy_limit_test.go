package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/protobuf"
)

// limited sets the limit of a descriptor.
func limited(count, unit uint64, descriptor []byte) []byte {
	return protobuf.AppendMessage(descriptor, 2, protobuf.AppendNumber(protobuf.AppendNumber(nil, 1, count), 2, unit))
}

// Each unit has a count of its own, which the number does not change; the status has the unit that was asked with.
func TestEnvoy_LimitOfADescriptorReplacesTheRate(t *testing.T) {
	e := askAsEnvoy(t, "")
	for unit := uint64(2); unit <= 7; unit++ { // a second would be over
		s := e.wants(codeOK, limited(3, unit, hits(2, descriptor("busy=yes"))))
		if want := fmt.Sprintf("busy 3/%d", unit); s.statuses[0].limit != want || s.statuses[0].left != 1 {
			t.Errorf("unit %d: %+v, want %s", unit, s.statuses, want)
		}
		if s := e.wants(codeOverLimit, limited(2, unit, descriptor("busy=yes"))); s.statuses[0].limit != fmt.Sprintf("busy 2/%d", unit) || !strings.Contains(s.toClient["Ratelimit-Policy"], ";q=2;") {
			t.Errorf("unit %d: refused with %+v", unit, s)
		}
	}
	e.wants(codeOverLimit, limited(0, 1, descriptor("busy=yes")))
	if s := e.wants(codeOK, limited(1<<32-1, 1, descriptor("busy=yes"))); s.statuses[0].limit != fmt.Sprintf("busy %d/1", int64(limiter.MaxCount)) {
		t.Errorf("the greatest limit: %+v", s.statuses)
	}
	for _, unknown := range []uint64{0, 8, 1 << 40} {
		if s := e.wants(codeOK, limited(1, unknown, hits(2, descriptor("busy=yes")))); s.statuses[0].limit != "busy 50/3" {
			t.Errorf("unit %d: %+v, want the rate of the limit", unknown, s.statuses)
		}
	}
	if s := e.wants(codeOK, descriptor("busy=yes")); s.statuses[0].limit != "busy 50/3" || s.statuses[0].left != 41 {
		t.Errorf("without a limit: %+v", s.statuses)
	}
	// The route of users does not say so.
	if s := e.wants(codeOK, limited(1, 3, descriptor("user=ann"))); s.statuses[0].limit != "user 3/3" {
		t.Errorf("without rate_from: %+v", s.statuses)
	}
}

func TestUnitOf(t *testing.T) {
	const day = 24 * time.Hour
	for window, want := range map[time.Duration][2]uint64{
		time.Second: {1, 1}, 90 * time.Second: {1, 90}, time.Minute: {2, 1}, 2 * time.Hour: {3, 2}, day: {4, 1}, 14 * day: {7, 2}, 30 * day: {5, 1}, 60 * day: {5, 2},
		365 * day: {6, 1}, 366 * day: {4, 366}, 31 * day: {4, 31}, 1500 * time.Millisecond: {0, 0},
	} {
		if unit, multiplier := unitOf(window); unit != want[0] || multiplier != want[1] {
			t.Errorf("%s: unit %d, %d times; want %v", window, unit, multiplier, want)
		}
	}
}
