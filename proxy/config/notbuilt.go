package config

import (
	"reflect"
	"strings"
)

// planned names what Weir will have and has not, and what to do instead: fields
// as FORM.FIELD, and values as FORM.FIELD=VALUE or, for the beginning of one,
// FORM.FIELD=BEGINNING:. A line is taken out when its field is built.
const planned = `
listenForm.http3            | leave it out: clients speak HTTP/2
`

// notBuilt reports whether a field of the form t is planned, and what to do
// instead.
func notBuilt(t reflect.Type, field string) (instead string, ok bool) {
	return lookup(t.Name() + "." + field)
}

// notBuiltValue is notBuilt for a value of a field.
func notBuiltValue(field, value string) (instead string, ok bool) {
	if instead, ok = lookup(field + "=" + value); ok {
		return instead, ok
	}
	source, _, named := strings.Cut(value, ":")
	if !named {
		return "", false
	}
	return lookup(field + "=" + source + ":")
}

// lookup finds the line of planned that begins with name.
func lookup(name string) (instead string, ok bool) {
	_, line, ok := strings.Cut(planned, "\n"+name+" ")
	if !ok {
		return "", false
	}
	line, _, _ = strings.Cut(line, "\n")
	_, instead, _ = strings.Cut(line, "|")
	return strings.TrimSpace(instead), true
}
