// Serves the app.
import { app } from "./express_app.mjs";

app.listen(9001, "127.0.0.1");
