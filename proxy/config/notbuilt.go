package config

import (
	"reflect"
	"strings"
)

// planned lists fields that are planned but not supported yet, as FORM.FIELD, and what to
// do instead.
const planned = `
listenForm.http3            | leave it out: clients speak HTTP/2
`

// notBuilt reports whether a field of form t is planned, and what to do instead.
func notBuilt(t reflect.Type, field string) (instead string, ok bool) {
	_, line, ok := strings.Cut(planned, "\n"+t.Name()+"."+field+" ")
	if !ok {
		return "", false
	}
	line, _, _ = strings.Cut(line, "\n")
	_, instead, _ = strings.Cut(line, "|")
	return strings.TrimSpace(instead), true
}
