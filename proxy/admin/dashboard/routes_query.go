package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxRouteRows is how many routes and limits a page shows; a route with more limits than that is a page of
// its own.
const maxRouteRows = 80

// routeOrders are the orders of routes; the first is that of the configuration.
func routeOrders() []string { return []string{"", "requests", "refused", "name"} }

// A routeQuery selects routes.
type routeQuery struct {
	Text  string // part of the name of a route, of its path, or of a limit or its key
	Order string
	Page  int // from 1
}

func routeQueryOf(r *http.Request) routeQuery {
	f := r.URL.Query()
	q := routeQuery{Text: strings.TrimSpace(f.Get("q")), Order: f.Get("sort"), Page: 1}
	if !slices.Contains(routeOrders(), q.Order) {
		q.Order = ""
	}
	if n, err := strconv.Atoi(f.Get("page")); err == nil && n > 1 {
		q.Page = n
	}
	return q
}

// Orders returns the orders to choose from.
func (q routeQuery) Orders() []string { return routeOrders() }

// URL returns the address of the page that is by so many away.
func (q routeQuery) URL(by int) string {
	f := url.Values{}
	if q.Text != "" {
		f.Set("q", q.Text)
	}
	if q.Order != "" {
		f.Set("sort", q.Order)
	}
	if page := q.Page + by; page > 1 {
		f.Set("page", strconv.Itoa(page))
	}
	if len(f) == 0 {
		return "/dashboard/routes"
	}
	return "/dashboard/routes?" + f.Encode()
}

// choose returns the routes of the page, the number of those that match, and the number of pages.
func (q routeQuery) choose(rows []*routeRow) (page []*routeRow, total, pages int) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r *routeRow) bool { return !q.matches(r) })
	slices.SortStableFunc(rows, func(a, b *routeRow) int {
		switch q.Order {
		case "requests":
			return cmp.Compare(b.Sum.Requests, a.Sum.Requests)
		case "refused":
			return cmp.Compare(b.Sum.Refused, a.Sum.Refused)
		case "name":
			return strings.Compare(a.Name, b.Name)
		}
		return 0
	})
	var all [][]*routeRow
	room := 0
	for _, r := range rows {
		if room -= 1 + len(r.Rows); room < 0 {
			all = append(all, nil)
			room = maxRouteRows - 1 - len(r.Rows)
		}
		all[len(all)-1] = append(all[len(all)-1], r)
	}
	if len(all) == 0 {
		return nil, 0, 1
	}
	return all[min(q.Page, len(all))-1], len(rows), len(all)
}

// matches reports whether a route, or one of its limits, has the text.
func (q routeQuery) matches(r *routeRow) bool {
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(q.Text)) }
	return has(r.Name) || has(r.Host+r.Path) || slices.ContainsFunc(r.Rows, func(l *limitRow) bool { return has(l.Name) || has(l.Key) || slices.ContainsFunc(l.Routes, has) })
}
