package dashboard

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// sendsShown is the number of keys of a limit.
const sendsShown = 50

// A conversionView is the data of the page of what became of the codes that were sent.
type conversionView struct {
	Limits []sendsOfLimit
	Nodes  []view.NodeAnswer
	Fault  fault
	At     time.Time
}

// A sendsOfLimit is what became of the requests that one limit counts.
type sendsOfLimit struct {
	sends.LimitCounts
	Span   string // the window of the counts: 1 day
	Rows   []sendsRow
	Marked bool // some row has a Country
}

// A sendsRow is a key of such a limit. Key is the name of its key. Country is that of a range of phone numbers which has
// more than half of what was verified in it; empty for any other.
type sendsRow struct {
	sends.KeyCounts
	Key string
}

// Shadow reports whether the limit refuses nothing yet.
func (l sendsOfLimit) Shadow() bool { return l.Mode == string(config.Shadow) }

func (d *dashboard) showConversion(r *http.Request) page {
	v := conversionView{At: time.Now()}
	all, err := d.Conversion(r.Context(), sends.Query{N: sendsShown})
	v.Fault, v.Nodes = faultOf("what was sent and used cannot be read", err), all.Nodes
	for _, l := range all.Limits {
		one := sendsOfLimit{LimitCounts: l, Span: spanOf(l.Window)}
		for _, k := range l.Keys {
			k.Masked = strings.TrimPrefix(k.Masked, l.Key+"=")
			if k.OfCountry == nil || !k.OfCountry.OverHalf {
				k.Country = ""
			}
			one.Marked = one.Marked || k.Country != ""
			one.Rows = append(one.Rows, sendsRow{k, l.Key})
		}
		v.Limits = append(v.Limits, one)
	}
	return page{name: "conversion", title: "Conversion", data: v}
}

// spanOf returns a window in words: 1 day, 90 minutes.
func spanOf(window string) string {
	d, err := limiter.ParseDuration(window)
	if err != nil {
		return window
	}
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if d >= u.unit && d%u.unit == 0 {
			return plural(int64(d/u.unit), u.name)
		}
	}
	return cmp.Or(window, d.String())
}
