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

// A sendsRow is a key of such a limit. Key is the name of its key.
type sendsRow struct {
	Key, Masked, Hash, ID string
	sends.Counts
	Rates   []sends.RateCounts
	Unknown string
	// Country is that of a range of phone numbers which has more than half of what was verified in it; empty for any other.
	Country string
	Share   sends.CountryShare
}

// Shadow reports whether the limit refuses nothing yet.
func (l sendsOfLimit) Shadow() bool { return l.Mode == string(config.Shadow) }

func (d *dashboard) showConversion(r *http.Request) page {
	v := conversionView{At: time.Now()}
	all, err := d.Conversion(r.Context(), sends.Query{N: sendsShown})
	v.Fault, v.Nodes = faultOf("what was sent cannot be told", err), all.Nodes
	for _, l := range all.Limits {
		one := sendsOfLimit{LimitCounts: l, Span: spanOf(l.Window)}
		for _, k := range l.Keys {
			row := sendsRow{Key: l.Key, Masked: strings.TrimPrefix(k.Masked, l.Key+"="), Hash: k.Hash, ID: k.ID, Counts: k.Counts, Rates: k.Rates, Unknown: k.Unknown}
			if k.OfCountry != nil && k.OfCountry.OverHalf {
				row.Country, row.Share, one.Marked = k.Country, *k.OfCountry, true
			}
			one.Rows = append(one.Rows, row)
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
