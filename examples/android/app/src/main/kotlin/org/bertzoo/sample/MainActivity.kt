package org.bertzoo.sample

import android.app.Activity
import android.os.Bundle
import android.widget.Button
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.TextView
import java.io.File
import java.security.MessageDigest
import java.util.concurrent.Executors
import org.json.JSONObject

private const val RESULTS = 5

/**
 * One screen: a text, a button for each file in the app, and the answer: the label and all probabilities, the entities
 * in the text, or, from a model of vectors, the lines of texts.txt that are closest to the text.
 */
class MainActivity : Activity() {
    private val worker = Executors.newSingleThreadExecutor()
    private val models = HashMap<String, Model>() // by file; used on the worker's thread only
    private val indexes = HashMap<String, TextIndex>()

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        val text = EditText(this).apply { hint = "Text" }
        val result = TextView(this)
        val screen = LinearLayout(this).apply {
            orientation = LinearLayout.VERTICAL
            fitsSystemWindows = true
            addView(text)
        }
        val files = assets.list("").orEmpty().filter { it.endsWith(".tflite") }
        if (files.isEmpty()) result.text = "The app has no .tflite file. See README.md."
        for (file in files) {
            screen.addView(Button(this).apply {
                this.text = file
                setOnClickListener { answer(file, text.text.toString(), result) }
            })
        }
        screen.addView(result)
        setContentView(screen)
    }

    private fun answer(file: String, text: String, result: TextView) = worker.execute {
        val lines = try {
            val model = models.getOrPut(file) { open(file) }
            val json = JSONObject(assets.text("$file.json"))
            val head = json.getJSONObject("head")
            if (head.getString("kind") == "embedding") {
                val index = indexes.getOrPut(file) { index(model, file, json.getString("sha256")) }
                index.nearest(model.embed(text), RESULTS).map { (found, cosine) -> "%.2f %s".format(cosine, found) }
            } else if (head.getString("kind") in listOf("token_classification", "multi_task")) {
                model.entities(text).map { "%s %.0f %%: %s".format(it.label, 100 * it.score, text.substring(it.start, it.end)) }
            } else {
                val shares = model.classify(text)
                listOf(answer(head, shares).joinToString().ifEmpty { "none of these" }) +
                    shares.map { (label, share) -> "%s %.1f %%".format(label, 100 * share) }
            }
        } catch (error: Exception) { // the screen shows it
            listOf("$file: ${error.message}")
        }
        runOnUiThread { result.text = lines.joinToString("\n") }
    }

    private fun open(file: String): Model =
        if (file.startsWith("mediapipe")) MediaPipeModel(this, file) else LiteRtModel(assets, file)

    /** Returns the index of texts.txt: the one kept on the phone, if it is of these texts and this model. */
    private fun index(model: Model, file: String, modelHash: String): TextIndex {
        val content = assets.text("texts.txt")
        val digest = MessageDigest.getInstance("SHA-256").digest(content.toByteArray())
        val key = modelHash + digest.joinToString("") { "%02x".format(it) }
        val kept = File(filesDir, "$file.index")
        return TextIndex.read(kept, key)
            ?: TextIndex.build(content.lines().map(String::trim).filter(String::isNotEmpty), model::embed)
                .also { it.write(kept, key) }
    }

    override fun onDestroy() {
        worker.execute { models.values.forEach { it.close() } }
        worker.shutdown()
        super.onDestroy()
    }
}
