package key

import (
	"fmt"
	"net/url"
)

// form is the one value of a field in a form, "" if there is none. The same
// name in the query is ErrAmbiguous: many servers mix the two.
func form(r Request, m Message, name string) (string, error) {
	body, err := whole(r, m)
	if err != nil || len(body.Bytes) == 0 {
		return "", err
	}
	kind, err := body.media()
	if err != nil {
		return "", err
	}
	fields := field{name: name, names: Names{}.With(name)}
	switch kind {
	case "application/x-www-form-urlencoded":
		err = fields.urlencoded(body.Bytes)
	case "multipart/form-data":
		err = fields.multipart(body)
	default:
		return "", fmt.Errorf("%w: Content-Type does not say that the body is a form", ErrInvalid)
	}
	switch {
	case err != nil:
		return "", err
	case r.Confused(Origin{Query, name}), len(fields.values) > 0 && len(r.Query(name)) > 0:
		return "", fmt.Errorf("%w: in the query as well as in the form", ErrAmbiguous)
	}
	return one(fields.values)
}

// A field collects the values that a form has for a name.
type field struct {
	name   string
	names  Names // the same
	values []string
}

// urlencoded reads a form in which & stands between fields. A semicolon, which
// some servers take for & too, and a bad escape are ErrAmbiguous.
func (f *field) urlencoded(body []byte) error {
	all, err := url.ParseQuery(string(body))
	if err != nil {
		return fmt.Errorf("%w: the form has a %% that is no escape, or a semicolon", ErrAmbiguous)
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
	case len(f.names.Confused(nil, name)) > 0:
		return fmt.Errorf("%w: in the form, another name may be taken for its own", ErrAmbiguous)
	case name != f.name:
		return nil
	}
	f.values = append(f.values, value)
	return nil
}
