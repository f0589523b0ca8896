package proxy

import (
	"strconv"
	"testing"
	"time"
)

func TestRecord_TimesAreWrittenAsNumbers(t *testing.T) {
	for _, us := range []int64{0, 1, 9, 10, 11, 99, 100, 101, 110, 999, 1000, 1001, 1010, 1100, 123456, 120000, 86_400_000_000} {
		for _, sign := range []int64{1, -1} {
			d := time.Duration(sign*us)*time.Microsecond + time.Duration(sign*999)
			if got, want := string(appendMS(nil, d)), strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', -1, 64); got != want && want != "-0" {
				t.Errorf("%s is %s ms; want %s", d, got, want)
			}
		}
	}
}
