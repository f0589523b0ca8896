package key

import (
	"fmt"
	"net/url"
	"unicode/utf8"
)

// form is the one value of a field in a form, "" if there is none. The same
// name in the query is ErrAmbiguous: many servers mix the two.
func form(r Request, m Message, name string) (string, error) {
	body, err := whole(r, m)
	if err != nil || len(body.Bytes) == 0 {
		return "", err
	}
	kind, parameters, err := body.media()
	if err != nil {
		return "", err
	}
	fields := field{name: name}
	switch kind {
	case "application/x-www-form-urlencoded":
		err = fields.urlencoded(body.Bytes)
	case "multipart/form-data":
		err = fields.multipart(body.Bytes, parameters["boundary"])
	default:
		return "", fmt.Errorf("%w: Content-Type does not say that the body is a form", ErrInvalid)
	}
	switch {
	case err != nil:
		return "", err
	case len(fields.values) > 0 && len(r.Query(name)) > 0:
		return "", fmt.Errorf("%w: in the form and in the query", ErrAmbiguous)
	}
	return one(fields.values)
}

// A field collects the values that a form has for a name.
type field struct {
	name   string
	values []string
}

// urlencoded reads a form in which & stands between fields. A semicolon, which
// some servers take for & too, and a bad escape are ErrInvalid.
func (f *field) urlencoded(body []byte) error {
	all, err := url.ParseQuery(string(body))
	if err != nil {
		return fmt.Errorf("%w: the form has a %% that is no escape, or a semicolon", ErrInvalid)
	}
	for name, values := range all {
		for _, value := range values {
			if err := f.meet(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// meet takes a value if it is of this field.
func (f *field) meet(name, value string) error {
	switch {
	case disguises(name, f.name):
		return fmt.Errorf("%w: in the form, in another spelling", ErrAmbiguous)
	case name != f.name:
		return nil
	case !utf8.ValidString(value):
		return fmt.Errorf("%w: in the form it is not UTF-8", ErrInvalid)
	}
	f.values = append(f.values, value)
	return nil
}
