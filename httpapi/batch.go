package httpapi

type batchBody struct{}
