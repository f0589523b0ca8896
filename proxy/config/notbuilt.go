package config

import (
	"reflect"
	"strings"
)

// planned names the fields that Weir will have and has not, as FORM.FIELD, and what
// to do instead. A line is taken out when its field is built.
const planned = `
listenForm.http3            | leave it out: clients speak HTTP/2
`

// notBuilt reports whether a field of the form t is planned, and what to do
// instead.
func notBuilt(t reflect.Type, field string) (instead string, ok bool) {
	_, line, ok := strings.Cut(planned, "\n"+t.Name()+"."+field+" ")
	if !ok {
		return "", false
	}
	line, _, _ = strings.Cut(line, "\n")
	_, instead, _ = strings.Cut(line, "|")
	return strings.TrimSpace(instead), true
}
