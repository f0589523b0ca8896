package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A parameter is a query parameter.
type parameter struct {
	name, summary string
	kind          string // string, integer or date-time
	min, max      int64  // of an integer
	enum          []string
}

func stringParam(name, summary string) parameter {
	return parameter{name: name, summary: summary, kind: "string"}
}

func intParam(name, summary string, least, most int64) parameter {
	return parameter{name: name, summary: summary, kind: "integer", min: least, max: most}
}

// checkQuery reports whether the query of r has only these parameters, each at most once and valid. If
// not, it has sent the error response.
func checkQuery(w http.ResponseWriter, r *http.Request, all []parameter) bool {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		problem(w, http.StatusBadRequest, "not a query: "+err.Error())
		return false
	}
	var names []string
	for _, p := range all {
		names = append(names, p.name)
	}
	for name, values := range query {
		i := slices.Index(names, name)
		why := ""
		switch {
		case i < 0 && len(all) == 0:
			why = fmt.Sprintf("there is no parameter %q; leave it out", name)
		case i < 0:
			why = fmt.Sprintf("there is no parameter %q; write one of %s", name, strings.Join(names, ", "))
		case len(values) > 1:
			why = name + " is there twice; write it once"
		default:
			why = all[i].wrong(values[0])
		}
		if why != "" {
			problem(w, http.StatusBadRequest, why)
			return false
		}
	}
	return true
}

// wrong returns why value is not valid for p. An empty value counts as absent.
func (p parameter) wrong(value string) string {
	if value == "" {
		return ""
	}
	switch p.kind {
	case "integer":
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < p.min || n > p.max {
			return fmt.Sprintf("%s=%s is no number of that; write %d to %d", p.name, value, p.min, p.max)
		}
	case "date-time":
		if _, err := time.Parse(time.RFC3339Nano, value); err != nil {
			return fmt.Sprintf("%s=%s is no time; write for example 2026-01-31T09:30:00Z", p.name, value)
		}
	}
	if p.enum != nil && !slices.Contains(p.enum, value) {
		return fmt.Sprintf("%s=%s is none; write one of %s", p.name, value, strings.Join(p.enum, ", "))
	}
	return ""
}

// intValue returns the value of a parameter that has been checked; 0 if it is absent.
func intValue(r *http.Request, name string) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil {
		return 0
	}
	return n
}
