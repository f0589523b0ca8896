package dashboard

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// topShown is the number of rows of a page, and of the keys of a limit that are compared.
const topShown = 50

// topMinutes are the times to choose from, in minutes; the last is that for which keys are counted.
func topMinutes() []int { return []int{5, 15} }

// A topView is the data of the page of top keys.
type topView struct {
	Query  view.TopQuery
	Text   string // part of a key or limit
	Times  []int
	Routes []string
	Limits []string
	Top    view.Top
	Rows   []topRow
	Page   int      // from 1
	More   int      // rows of the pages after it
	Spread []string // what is refused of so many keys that none stands out
	Fault  fault
}

// A topRow is a key of a limit. Which is not among the first of both lists has one count only.
type topRow struct {
	Route, Limit, Mode, Key string // the last is the name of the key
	view.TopKey
	Refused, Requests *view.TopKey
	AllRefused        int64 // refusals of the limit
}

func (d *dashboard) showTop(r *http.Request) page {
	f := r.URL.Query()
	v := topView{
		Times: topMinutes(), Text: strings.TrimSpace(f.Get("q")), Page: pageNumber(f),
		Query: view.TopQuery{Route: f.Get("route"), Limit: f.Get("limit"), Minutes: minutesOf(r, topMinutes(), topMinutes()[1]), N: topShown},
	}
	top, err := d.Top(r.Context(), v.Query)
	v.Top, v.Fault = top, faultOf("top keys cannot be read", err)
	limits, err := d.Limits(r.Context())
	v.Fault = cmp.Or(v.Fault, faultOf("limits cannot be read", err))
	v.Routes, v.Limits = namesOf(limits)
	for _, l := range v.Top.Limits {
		v.add(l)
	}
	slices.SortStableFunc(v.Rows, func(a, b topRow) int {
		return cmp.Or(compareCounts(b.Refused, a.Refused), compareCounts(b.Requests, a.Requests))
	})
	v.Page = min(v.Page, max(len(v.Rows)-1, 0)/topShown+1)
	v.Rows = v.Rows[(v.Page-1)*topShown:]
	v.More = max(len(v.Rows)-topShown, 0)
	v.Rows = v.Rows[:len(v.Rows)-v.More]
	return page{name: "top", title: "Top keys", data: v}
}

// namesOf returns the routes with limits and the names of limits, sorted.
func namesOf(limits view.Limits) (routes, names []string) {
	for _, l := range limits.Limits {
		routes, names = append(routes, l.Routes...), append(names, l.Name)
		if l.Route != "" {
			routes = append(routes, l.Route)
		}
	}
	slices.Sort(routes)
	slices.Sort(names)
	return slices.Compact(routes), slices.Compact(names)
}

// add adds the keys of a limit that have the text.
func (v *topView) add(l view.TopLimit) {
	name := view.LimitName(l.Route, l.Limit)
	for _, k := range l.Keys() {
		if !strings.Contains(strings.ToLower(k.Masked+" "+name), strings.ToLower(v.Text)) {
			continue
		}
		row := topRow{Route: l.Route, Limit: l.Limit, Mode: l.Mode, Key: l.Key, TopKey: k, AllRefused: l.Refused.Total}
		row.Refused, row.Requests = l.Refused.Find(k.ID), l.Requests.Find(k.ID)
		if row.Refused == nil && l.Refused.Floor == 0 { // all keys that were refused are listed
			row.Refused = &view.TopKey{}
		}
		v.Rows = append(v.Rows, row)
	}
	if l.Refused.Total > 0 && len(l.Refused.Keys) == 0 {
		v.Spread = append(v.Spread, name+": "+view.Count(l.Refused.Total))
	}
}

// compareCounts compares the counts of two keys; one that is not known is 0.
func compareCounts(a, b *view.TopKey) int {
	return cmp.Compare(cmp.Or(a, &view.TopKey{}).Count, cmp.Or(b, &view.TopKey{}).Count)
}

// URL returns the address of the page that is by so many away.
func (v topView) URL(by int) string {
	return "/dashboard/top?" + admin.QueryOf(map[string]any{"q": v.Text, "route": v.Query.Route, "limit": v.Query.Limit, "minutes": v.Query.Minutes, "page": v.Page + by})
}

// refusersShown is how many limits the overview lists.
const refusersShown = 5

// A refuser is a limit with its refusals. A request that several limits refuse counts for each of them.
type refuser struct {
	Route, Limit string
	Refused      int64
	Shadow       int64 // requests that were allowed, and would be refused
}

// refusersSince returns the limits that refused most since that time, first those that refused most.
func refusersSince(s view.Statistics, since time.Time) []refuser {
	by := map[[2]string]refuser{}
	for _, m := range s.Minutes {
		part := partSince(m, since)
		for _, r := range m.Routes {
			for _, l := range r.Limits {
				name := [2]string{r.Route, l.Limit}
				at := by[name]
				at.Refused += int64(math.Round(part * float64(l.Refused)))
				at.Shadow += int64(math.Round(part * float64(l.ShadowRefused)))
				by[name] = refuser{r.Route, l.Limit, at.Refused, at.Shadow}
			}
		}
	}
	most := slices.DeleteFunc(slices.Collect(maps.Values(by)), func(r refuser) bool { return r.Refused+r.Shadow == 0 })
	slices.SortFunc(most, func(a, b refuser) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Shadow, a.Shadow), strings.Compare(view.LimitName(a.Route, a.Limit), view.LimitName(b.Route, b.Limit)))
	})
	return most[:min(len(most), refusersShown)]
}

// sendsShown is the number of keys of a limit.
const sendsShown = 50

// A conversionView is the data of the page of what became of the codes that were sent.
type conversionView struct {
	admin.Conversion
	Fault fault
}

// A sendsRow is a key of a limit with return_on. Key is the name of its key. Country is that of a range of phone numbers which has
// more than half of what was verified in it; empty for any other.
type sendsRow struct {
	sends.KeyCounts
	Key string
}

func (d *dashboard) showConversion(r *http.Request) page {
	all, err := d.Conversion(r.Context(), sends.Query{N: sendsShown})
	v := conversionView{all, faultOf("what was sent and used cannot be read", err)}
	return page{name: "conversion", title: "Conversion", data: v}
}

// Rows returns the keys of a limit as the page shows them.
func (conversionView) Rows(l sends.LimitCounts) []sendsRow {
	return view.Each(l.Keys, func(k sends.KeyCounts) sendsRow {
		k.Masked = strings.TrimPrefix(k.Masked, l.Key+"=")
		if k.OfCountry == nil || !k.OfCountry.OverHalf {
			k.Country = ""
		}
		return sendsRow{k, l.Key}
	})
}
