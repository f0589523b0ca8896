package http1

import "net/http"

// reason is the reason phrase of a status, as the registry has it.
func reason(status int) string {
	switch status {
	case 200:
		return "OK"
	case 429:
		return "Too Many Requests"
	}
	return http.StatusText(status)
}
