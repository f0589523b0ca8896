package config

import (
	"maps"
	"regexp"
	"strconv"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// An ErrorText is what Weir answers with a status from 400 to 599, other than a refusal by a limit.
// The placeholders are {retry_after}, {request_id} and {status}, in Headers also {origin}.
type ErrorText struct {
	Detail      string            // detail of the problem document, if Body is empty; may be empty
	Headers     map[string]string // by canonical name
	Body        string            // instead of a problem document; may be empty
	ContentType string            // of Body
}

// errorStatus matches a status or a class of statuses.
var errorStatus = regexp.MustCompile(`^([45])([0-9]{2}|xx)$`)

// errors compiles the texts of errors by their status. A status comes before a class.
func (l *loader) errors(forms map[string]*errorForm) map[int]ErrorText {
	if len(forms) == 0 {
		return nil
	}
	classes, made := map[int]ErrorText{}, map[int]ErrorText{}
	for _, name := range form.SortedKeys(forms) {
		f := forms[name]
		m := errorStatus.FindStringSubmatch(name)
		switch {
		case m == nil:
			l.WrongName(f, form.Quote(name)+" is not the status of an error", "write for example 404, 4xx or 5xx")
			continue
		case name == "429":
			l.WrongName(f, "429 is the answer of limits", "write reject: in the route")
			continue
		}
		r := l.texts(texts{&f.Detail, &f.Body, &f.ContentType, f.Headers, []string{"{retry_after}", "{request_id}", "{status}"}})
		text := ErrorText{r.Detail, r.Headers, r.Body, r.ContentType}
		if status, err := strconv.Atoi(name); err == nil {
			made[status] = text
			continue
		}
		first, _ := strconv.Atoi(m[1])
		for status := 100 * first; status < 100*first+100; status++ {
			classes[status] = text
		}
	}
	delete(classes, 429)
	maps.Copy(classes, made)
	return classes
}

// errorsOf compiles the texts of a route, which come before those of the file; nil if it has none of
// its own.
func (r *routes) errorsOf(f *routeForm) map[int]ErrorText {
	if len(f.Errors) == 0 {
		return nil
	}
	all := map[int]ErrorText{}
	maps.Copy(all, r.errorTexts)
	maps.Copy(all, r.errors(f.Errors))
	return all
}
