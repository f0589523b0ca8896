package http1

import "net/http"

// reason returns the reason phrase that is registered for a status.
func reason(status int) string {
	if status == 429 {
		return "Too Many Requests"
	}
	return http.StatusText(status)
}
