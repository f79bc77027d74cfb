// Made of src/api/openapi.json by build.mjs.
export {};
